module github.com/asyncmonolith/asyncmonolith-go/broker/rabbitmq

go 1.26.0

require (
	github.com/asyncmonolith/asyncmonolith-go v0.0.0
	github.com/rabbitmq/amqp091-go v1.16.0
)

replace github.com/asyncmonolith/asyncmonolith-go => ../..

module github.com/asyncmonolith/asyncmonolith-go/examples

go 1.26.0

require (
	github.com/asyncmonolith/asyncmonolith-go v0.0.0
	github.com/uptrace/bun v1.3.0
	github.com/uptrace/bun/dialect/sqlitedialect v1.3.0
	go.uber.org/goleak v1.3.0
	modernc.org/sqlite v1.60.1
)

replace github.com/asyncmonolith/asyncmonolith-go => ../

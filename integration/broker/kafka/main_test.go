//go:build unix

package kafka_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/asyncmonolith/asyncmonolith-go/integration/brokers"
)

func TestMain(m *testing.M) {
	brokers.Main()
	goleak.VerifyTestMain(m)
}

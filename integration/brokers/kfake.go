//go:build unix

package brokers

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

// Kfake is a fake of a Kafka cluster: it speaks the protocol, and replicates nothing.
type Kfake struct {
	*Process
}

// StartKfake starts a fake of n brokers. What they have is in files, so that it survives a kill.
func StartKfake(t testing.TB, n int) *Kfake {
	t.Helper()
	ports, err := freePorts(n)
	if err != nil {
		t.Fatal(err)
	}
	return &Kfake{newProcess(t, settings{Kind: "kfake", Dir: t.TempDir(), Ports: ports})}
}

// Brokers are the addresses of all brokers.
func (k *Kfake) Brokers() (addresses []string) {
	for _, port := range k.settings.Ports {
		addresses = append(addresses, fmt.Sprintf("127.0.0.1:%d", port))
	}
	return addresses
}

// serveKfake is what the process of the fake does.
func serveKfake(s settings) error {
	cluster, err := kfake.NewCluster(kfake.Ports(s.Ports...), kfake.DataDir(s.Dir), kfake.SyncWrites())
	if err != nil {
		return err
	}
	defer cluster.Close()
	return serve(nil)
}

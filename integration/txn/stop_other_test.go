//go:build !unix

package txn_test

import "errors"

const canStop = false

func stopMyself() error { return errors.ErrUnsupported }

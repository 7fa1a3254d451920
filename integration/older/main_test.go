package older_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// olderCommit is the last one before flow control.
const olderCommit = "88e2f9092871953303adb0250d530badf7949b2f"

// olderProgram returns the path of the older program: testdata/older, built in the tree of that
// commit with the dependencies of that time. It is immutable.
var olderProgram = sync.OnceValues(buildOlder)

// buildDir is where that happens. It is immutable.
var buildDir = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "asyncmonolith-older") })

// TestMain runs the tests, and removes the older program.
func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if dir, err := buildDir(); err == nil {
			_ = os.RemoveAll(dir)
		}
		os.Exit(code)
	}))
}

func buildOlder() (program string, err error) {
	archive := exec.Command("git", "-c", "safe.directory=*", "archive", "--format=tar", olderCommit) // in a checkout owned by someone else, too
	root, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	var stderr bytes.Buffer
	archive.Dir, archive.Stderr = root, &stderr
	tree, err := archive.Output()
	if err != nil {
		return "", fmt.Errorf("the older program is made of commit %s, and git does not find that here: these tests need a clone with its history (git fetch --unshallow): %w: %s", olderCommit, err, &stderr)
	}
	into, err := buildDir()
	if err != nil {
		return "", err
	}
	if err := unpack(tree, into); err != nil {
		return "", fmt.Errorf("unpack commit %s: %w", olderCommit, err)
	}
	source, err := os.ReadFile("testdata/older/main.go")
	if err != nil {
		return "", err
	}
	dir := filepath.Join(into, "integration", "older")
	program = filepath.Join(into, "older.exe")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "main.go"), source, 0o644)); err != nil {
		return "", err
	}
	// Paths are not trimmed, so that the dependencies are those that other builds have left in the
	// cache: the database drivers take ten times as long as the library.
	build := exec.Command("go", "build", "-buildvcs=false", "-o", program, ".")
	build.Dir, build.Env = dir, append(os.Environ(), "GOWORK=", "GOFLAGS=")
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the older program: %w\n%s", err, output)
	}
	return program, nil
}

func unpack(archive []byte, dir string) error {
	for files := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := files.Next()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case header.Typeflag != tar.TypeReg:
			continue
		}
		content, err := io.ReadAll(files)
		if err != nil {
			return err
		}
		path := filepath.Join(dir, filepath.FromSlash(header.Name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o644)); err != nil {
			return err
		}
	}
}

//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// library is the pattern of our own packages. They are compiled without inlining: then a change inside a
// function, which keeps the lines of its file, leaves packages that import it as they are, and a mutant takes
// one compilation and a link. The go command would compile those packages again, for three times as long.
const library = "github.com/asyncmonolith/asyncmonolith-go/..."

// program is the tests of a package, as the go command has compiled them without a mistake.
type program struct {
	name, root, pkg, dir string
	load                 func() error           // once, before anything else
	healthy              func() (string, error) // the program without a mistake, linked once

	main     listed
	packages []listed
	imports  string // what the compiler needs to find packages
}

func newProgram(ctx context.Context, root, pkg, dir string) *program {
	p := &program{name: strings.ReplaceAll(strings.Trim(pkg, "./"), "/", "-"), root: root, pkg: pkg, dir: dir}
	p.load = sync.OnceValue(func() error { return p.list(ctx) })
	p.healthy = sync.OnceValues(func() (string, error) { return p.link(ctx, dir, nil) })
	return p
}

// listed is what go list knows of a package.
type listed struct {
	ImportPath, Name, Dir, Export, ForTest string
	GoFiles, EmbedPatterns, EmbedFiles     []string
	Module                                 *struct{ GoVersion string }
}

// path is what the package is imported by, also if it is a variant that has tests within it.
func (l listed) path() string {
	name, _, _ := strings.Cut(l.ImportPath, " ")
	return name
}

// list asks the go command for packages and all that they import.
func list(ctx context.Context, root string, args ...string) (all []listed, err error) {
	const fields = "-json=ImportPath,Name,Dir,Export,ForTest,GoFiles,EmbedPatterns,EmbedFiles,Module"
	args = append([]string{"list", "-export", "-deps", fields}, args...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for d := json.NewDecoder(strings.NewReader(string(output))); ; {
		var l listed
		err := d.Decode(&l)
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		all = append(all, l)
	}
}

func (p *program) list(ctx context.Context) error {
	all, err := list(ctx, p.root, "-test", "-gcflags="+library+"=-l", p.pkg)
	if err != nil {
		return err
	}
	variants := make(map[string]bool)
	for _, l := range all {
		variants[l.path()] = variants[l.path()] || l.ForTest != ""
	}
	for _, l := range all {
		switch {
		case l.Name == "main" && strings.HasSuffix(l.ImportPath, ".test"):
			p.main = l
		case l.Export != "" && (l.ForTest != "" || !variants[l.path()]):
			p.packages = append(p.packages, l)
		}
	}
	p.imports = filepath.Join(p.dir, p.name+".imports")
	return os.WriteFile(p.imports, p.config(nil), 0o600)
}

// config lists the compiled packages, some of them replaced by others.
func (p *program) config(replaced map[string]string) []byte {
	var text strings.Builder
	for _, l := range p.packages {
		archive := l.Export
		if replaced[l.path()] != "" {
			archive = replaced[l.path()]
		}
		fmt.Fprintf(&text, "packagefile %s=%s\n", l.path(), archive)
	}
	return []byte(text.String())
}

// link makes a test program with other texts in the place of some files.
func (p *program) link(ctx context.Context, dir string, changed map[string]string) (binary string, err error) {
	if err := p.load(); err != nil {
		return "", err
	}
	archives := make(map[string]string)
	for _, l := range p.packages {
		if !l.has(changed) {
			continue
		}
		archives[l.path()], err = p.compile(ctx, l, dir, changed)
		if err != nil {
			return "", err
		}
	}
	if len(changed) > 0 && len(archives) == 0 { // it is in a program that the tests build
		return p.healthy()
	}
	config := filepath.Join(dir, p.name+".link")
	if err := os.WriteFile(config, p.config(archives), 0o600); err != nil {
		return "", err
	}
	binary = filepath.Join(dir, p.name+".test")
	return binary, p.tool(ctx, "link", "-s", "-w", "-o", binary, "-importcfg", config, p.main.Export)
}

// has tells whether the package is made of a file that is changed.
func (l listed) has(changed map[string]string) bool {
	isChanged := func(name string) bool { return changed[filepath.Join(l.Dir, name)] != "" }
	return slices.ContainsFunc(l.GoFiles, isChanged) || slices.ContainsFunc(l.EmbedFiles, isChanged)
}

func (p *program) compile(ctx context.Context, l listed, dir string, changed map[string]string) (archive string, err error) {
	file := func(name string) string {
		name = filepath.Join(l.Dir, name)
		if changed[name] != "" {
			return changed[name]
		}
		return name
	}
	archive = filepath.Join(dir, strings.ReplaceAll(l.path(), "/", "-")+".a")
	args := []string{"compile", "-l", "-pack", "-p", l.path(), "-importcfg", p.imports, "-o", archive, "-trimpath", names(changed)}
	if l.Module != nil {
		args = append(args, "-lang=go"+strings.Join(strings.SplitN(l.Module.GoVersion, ".", 3)[:2], "."))
	}
	if len(l.EmbedFiles) > 0 {
		embedded, err := json.Marshal(l.embedded(file))
		if err != nil {
			return "", err
		}
		config := archive + ".embed"
		if err := os.WriteFile(config, embedded, 0o600); err != nil {
			return "", err
		}
		args = append(args, "-embedcfg", config)
	}
	for _, name := range l.GoFiles {
		args = append(args, file(name))
	}
	return archive, p.tool(ctx, args...)
}

// names has the compiler write down files that are changed by the names of those that they replace.
func names(changed map[string]string) string {
	var all []string
	for name, mutated := range changed {
		all = append(all, mutated+"=>"+name)
	}
	return strings.Join(all, ";")
}

// embedded is what the compiler is told of files that are embedded.
func (l listed) embedded(file func(string) string) map[string]any {
	files, patterns := make(map[string]string), make(map[string][]string)
	for _, name := range l.EmbedFiles {
		files[name] = file(name)
		for _, pattern := range l.EmbedPatterns {
			ok, _ := path.Match(pattern, name)
			if ok || strings.HasPrefix(name, pattern+"/") {
				patterns[pattern] = append(patterns[pattern], name)
			}
		}
	}
	return map[string]any{"Files": files, "Patterns": patterns}
}

func (p *program) tool(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"tool"}, args...)...)
	cmd.Dir = p.root
	output, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("go tool %s: %w\n%s", args[0], err, output)
	}
	return nil
}

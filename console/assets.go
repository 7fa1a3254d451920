package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"strings"

	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

//go:embed assets
var assetFiles embed.FS

// asset is an embedded file that pages need.
type asset struct {
	path    string // with a hash of the content, so that browsers can keep it
	kind    string
	content []byte
}

// assets are by the name of their file.
type assets map[string]asset

func loadAssets() (assets, error) {
	entries, err := assetFiles.ReadDir("assets")
	if err != nil {
		return nil, fmt.Errorf("assets: %w", err)
	}
	kinds := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
	all := assets{}
	for _, entry := range entries {
		name := entry.Name()
		content, err := assetFiles.ReadFile("assets/" + name)
		if err != nil {
			return nil, fmt.Errorf("assets: %w", err)
		}
		hash, ext := sha256.Sum256(content), path.Ext(name)
		hashed := strings.TrimSuffix(name, ext) + "." + hex.EncodeToString(hash[:6]) + ext
		all[name] = asset{path: hashed, kind: kinds[ext], content: content}
	}
	return all, nil
}

// Path is where a file is.
func (a assets) Path(name string) string { return a[name].path }

func (a assets) routes() (routes []route) {
	for _, asset := range a {
		routes = append(routes, route{path: asset.path, method: http.MethodGet, role: ops.Viewer, serve: asset.serve})
	}
	return routes
}

func (a asset) serve(r *request) error {
	h := r.w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Cache-Control", "private, max-age=31536000, immutable") // it has no secrets, and another name when it changes
	_, _ = r.w.Write(a.content)                                    // the client may have gone
	return nil
}

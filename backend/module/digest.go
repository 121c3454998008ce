package module

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// digest covers the canonical schema text and every source file that goes into the module, by names that hold no path of
// this machine. Versions of other Go modules are covered by go.sum.
func (s Source) digest() (string, error) {
	files := slices.Clone(s.inputs)
	slices.SortFunc(files, func(a, b inputFile) int { return strings.Compare(a.name, b.name) })
	files = slices.CompactFunc(files, func(a, b inputFile) bool { return a.name == b.name })
	sum := sha256.New()
	text := s.Module.Text()
	fmt.Fprintf(sum, "carillon module 1\n%d\n%s", len(text), text)
	for _, f := range files {
		h, err := hashFile(f.path)
		if err != nil {
			return "", fmt.Errorf("hash %s: %w", f.name, err)
		}
		fmt.Fprintf(sum, "%q %s\n", f.name, h)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func hashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

package housekeeping

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestSizesGoToAFileWithoutADatabase(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made when missing")
	t.Setenv("HOUSEKEEPING_DIR", dir)
	t.Setenv("DATABASE_URL", "")
	for range 2 {
		if err := Record(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, sizesFile))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
	if err != nil || len(rows) != 2 || len(rows[0]) != 7 || rows[0][2] != dir {
		t.Fatalf("rows %q: %v", rows, err)
	}
	if rows[0][3] != "0" || rows[1][3] != "1" { // the second sees the file of the first
		t.Errorf("files counted: %s, then %s", rows[0][3], rows[1][3])
	}
	if _, err := time.Parse(time.RFC3339Nano, rows[0][0]); err != nil {
		t.Error(err)
	}
}

func TestTheSizesFileStaysSmall(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, sizesFile, strings.Repeat("x", maxSizesFile), 0)
	if err := recordInFile(dir, sizes{}); err != nil {
		t.Fatal(err)
	}
	wantNames(t, dir, sizesFile, sizesFile+".old")
	info, err := os.Stat(filepath.Join(dir, sizesFile))
	if err != nil || info.Size() > 200 {
		t.Errorf("%d bytes after the new start: %v", info.Size(), err)
	}
}

func TestMeasureCountsWithoutFollowingLinks(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "a/b", "12345", 0)
	put(t, dir, "c", "678", 0)
	if err := os.Symlink("/", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	s, err := measure(dir, now)
	if err != nil || s.files != 2 || s.bytes != 8 || s.disk.free > s.disk.total {
		t.Errorf("measured %+v: %v", s, err)
	}
}

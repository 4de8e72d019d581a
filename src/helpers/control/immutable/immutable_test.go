package immutable

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestChangedSettingsAreRefused(t *testing.T) {
	record := filepath.Join(t.TempDir(), "store", "settings.json")
	deployed := Settings{"cluster.service_cidr": "10.96.0.0/16", "cluster.pod_cidr": "10.244.0.0/16"}
	changed := Settings{
		"cluster.service_cidr": "10.97.0.0/16",
		"cluster.pod_cidr":     "10.244.0.0/16",
		"cluster.domain":       "cluster.local",
	}
	if err := changed.Check(record); err != nil {
		t.Errorf("refused before the first deploy: %v", err)
	}
	var log bytes.Buffer
	// The second one is that of a VM whose pre-start has failed.
	for _, s := range []Settings{deployed, changed} {
		if err := s.Keep(record, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(log.String(), "cluster.service_cidr is") {
		t.Errorf("the log does not say why the record is kept: %s", log.String())
	}
	if err := deployed.Check(record); err != nil {
		t.Error(err)
	}
	err := changed.Check(record)
	if err == nil {
		t.Fatal("not refused")
	}
	for _, want := range []string{
		`cluster.service_cidr is "10.97.0.0/16"`, `deployed with "10.96.0.0/16"`, "deploy a new cluster", record,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the message lacks %q: %v", want, err)
		}
	}
	for _, unchanged := range []string{"cluster.pod_cidr", "cluster.domain"} {
		if strings.Contains(err.Error(), unchanged) {
			t.Errorf("the message names %s: %v", unchanged, err)
		}
	}
}

// Only root decides whether a deploy goes on: a record that another user could have written is an error.
func TestRecordsOfOthersAreNotBelieved(t *testing.T) {
	record := filepath.Join(t.TempDir(), "settings.json")
	if err := os.WriteFile(record, []byte(`{"cluster.pod_cidr": "10.0.0.0/8"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(record, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := (Settings{}).Check(record); err == nil || !strings.Contains(err.Error(), record) {
		t.Errorf("got %v", err)
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "settings.json")
	if err := os.WriteFile(path, []byte(`{"cluster.pod_cidr": 3}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
}

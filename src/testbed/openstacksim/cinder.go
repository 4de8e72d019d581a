package openstacksim

import (
	"cmp"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The states of volumes and snapshots that the simulator has (cinder/objects/fields.py of Cinder).
const (
	creating  = "creating"
	available = "available"
	attaching = "attaching"
	inUse     = "in-use"
	detaching = "detaching"
	extending = "extending"
	deleting  = "deleting"
)

// firstOnlineExtend is the version of the API from which on a volume that is attached can grow
// (cinder/api/microversions.py).
const firstOnlineExtend = 42

const gib = 1 << 30

// cinder has the requests of the Block Storage API 3.
func cinder() []service {
	return []service{
		{
			name: "volume", prefix: "/volume", errors: namedError, open: true,
			actions: map[string]action{"GET /": cinderVersions},
		},
		{
			name: "volume", prefix: "/volume/v3/{project}", errors: namedError,
			actions: map[string]action{
				"POST /volumes":               createVolume,
				"GET /volumes/detail":         listVolumes,
				"GET /volumes/{id}":           getVolume,
				"DELETE /volumes/{id}":        deleteVolume,
				"POST /volumes/{id}/action":   extendVolume,
				"POST /snapshots":             createSnapshot,
				"GET /snapshots":              listSnapshots,
				"GET /snapshots/{id}":         getSnapshot,
				"DELETE /snapshots/{id}":      deleteSnapshot,
				"GET /types":                  listVolumeTypes,
				"GET /os-quota-sets/{tenant}": volumeQuota,
				"GET /os-availability-zone":   listVolumeZones,
			},
		},
	}
}

func cinderVersions(_ *Simulator, r *http.Request) (answer, error) {
	return answer{status: http.StatusMultipleChoices, body: map[string]any{"versions": []map[string]any{{
		"id": "v3.0", "status": "CURRENT", "version": "3.70", "min_version": "3.0",
		"links": []map[string]string{{"rel": "self", "href": base(r) + "/volume/v3/"}},
	}}}}, nil
}

// settleVolumes ends the states of volumes and snapshots whose time has come, and reports whether any has.
func (s *Simulator) settleVolumes() (changed bool) {
	w, due := s.world, func(status string, settles time.Time) bool {
		return status != available && status != inUse && !settles.After(s.now())
	}
	for i := range w.Volumes {
		if v := &w.Volumes[i]; v.Status != deleting && due(v.Status, v.Settles) {
			if v.Status == detaching {
				v.Attachments = nil
			}
			v.Status, changed = available, true
			if len(v.Attachments) > 0 {
				v.Status = inUse
			}
		}
	}
	for i := range w.Snapshots {
		if c := &w.Snapshots[i]; c.Status != deleting && due(c.Status, c.Settles) {
			c.Status, changed = available, true
		}
	}
	before := len(w.Volumes) + len(w.Snapshots)
	w.Volumes = slices.DeleteFunc(w.Volumes, func(v Volume) bool { return due(v.Status, v.Settles) })
	w.Snapshots = slices.DeleteFunc(w.Snapshots, func(c Snapshot) bool { return due(c.Status, c.Settles) })
	return changed || len(w.Volumes)+len(w.Snapshots) < before
}

func (s *Simulator) volumeState(v *Volume, status string) {
	v.Status, v.Settles = status, s.now().Add(s.options.Settle)
}

// cinderTime is the form of times in Cinder's API.
func cinderTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000") }

func (w *World) volume(id string) *Volume {
	return find(w.Volumes, func(v *Volume) bool { return v.ID == id })
}

func (w *World) snapshot(id string) *Snapshot {
	return find(w.Snapshots, func(c *Snapshot) bool { return c.ID == id })
}

func (v *Volume) attachedTo(server string) bool {
	return slices.ContainsFunc(v.Attachments, func(a VolumeAttachment) bool { return a.ServerID == server })
}

// shown is a volume as the API shows it: attachments are there once the server has the device.
func (v Volume) shown() Volume {
	if v.Attachments == nil || v.Status == attaching {
		v.Attachments = []VolumeAttachment{}
	}
	return v
}

// size is how many GiB count against the quota.
func (w *World) size() (sum int) {
	for _, v := range w.Volumes {
		sum += v.Size
	}
	for _, c := range w.Snapshots {
		sum += c.Size
	}
	return sum
}

// admit checks the quota (cinder/quota_utils.py); a negative limit is none.
func admit(name string, limit, used, gigabytes, consumed, more int) error {
	if limit >= 0 && used+1 > limit {
		return tooMuch("Maximum number of " + name + " allowed (" + strconv.Itoa(limit) + ") exceeded for quota '" +
			name + "'.")
	}
	if gigabytes >= 0 && consumed+more > gigabytes {
		return tooMuch("Requested volume or snapshot exceeds allowed gigabytes quota. Requested " +
			strconv.Itoa(more) + "G, quota is " + strconv.Itoa(gigabytes) + "G and " + strconv.Itoa(consumed) +
			"G has been consumed.")
	}
	return nil
}

func tooMuch(message string) error { return failure{http.StatusRequestEntityTooLarge, message} }

// invalidVolume is Cinder's answer to what the state of a volume does not allow.
func invalidVolume(v *Volume, wanted string) error {
	return badRequest(
		"Invalid volume: Volume %s status must be %s, but the current status is %s.", v.ID, wanted, v.Status,
	)
}

func listVolumes(s *Simulator, r *http.Request) (answer, error) {
	found, err := query(r, s.world.Volumes, map[string]func(Volume) []string{
		"name": func(v Volume) []string { return one(v.Name) },
	})
	if err != nil {
		return answer{}, err
	}
	for i := range found {
		found[i] = found[i].shown()
	}
	return ok("volumes", found)
}

func getVolume(s *Simulator, r *http.Request) (answer, error) {
	v := s.world.volume(r.PathValue("id"))
	if v == nil {
		return answer{}, notFound("Volume", r.PathValue("id"))
	}
	return ok("volume", v.shown())
}

type volumeRequest struct {
	Name             string            `json:"name"`
	Description      string            `json:"description"`
	Size             int               `json:"size"`
	VolumeType       string            `json:"volume_type"`
	AvailabilityZone string            `json:"availability_zone"`
	SnapshotID       string            `json:"snapshot_id"`
	SourceVolumeID   string            `json:"source_volid"`
	Metadata         map[string]string `json:"metadata"`
}

func createVolume(s *Simulator, r *http.Request) (answer, error) {
	w := s.world
	var wanted volumeRequest
	if err := read(r, "volume", &wanted); err != nil {
		return answer{}, err
	}
	kind := cmp.Or(wanted.VolumeType, w.VolumeTypes[0].Name)
	if find(w.VolumeTypes, func(t *VolumeType) bool { return t.Name == kind || t.ID == kind }) == nil {
		return answer{}, failure{http.StatusNotFound, "Volume type with name " + kind + " could not be found."}
	}
	zone := cmp.Or(wanted.AvailabilityZone, LabZone)
	if zone != LabZone {
		return answer{}, badRequest("Availability zone '%s' is invalid.", zone)
	}
	least, source := 1, cmp.Or(wanted.SnapshotID, wanted.SourceVolumeID)
	if wanted.SnapshotID != "" {
		from := w.snapshot(wanted.SnapshotID)
		if from == nil || from.Status != available {
			return answer{}, badRequest("Invalid snapshot: %s", wanted.SnapshotID)
		}
		least = from.Size
	}
	if wanted.SourceVolumeID != "" {
		from := w.volume(wanted.SourceVolumeID)
		if from == nil || from.Status != available && from.Status != inUse {
			return answer{}, badRequest("Invalid volume: %s", wanted.SourceVolumeID)
		}
		least = from.Size
	}
	if wanted.Size < least {
		return answer{}, badRequest(
			"Invalid input received: Volume size '%d'GB cannot be smaller than original volume size %dGB.",
			wanted.Size, least,
		)
	}
	if err := admit(
		"volumes", w.Quota.Volumes, len(w.Volumes), w.Quota.Gigabytes, w.size(), wanted.Size,
	); err != nil {
		return answer{}, err
	}
	v := Volume{
		ID: newID(), Name: wanted.Name, Description: wanted.Description, Size: wanted.Size, VolumeType: kind,
		AvailabilityZone: zone, SnapshotID: wanted.SnapshotID, SourceVolumeID: wanted.SourceVolumeID,
		Metadata: wanted.Metadata, Created: cinderTime(s.now()),
	}
	s.volumeState(&v, creating)
	if err := s.options.Disks.Create(v.ID, int64(v.Size)*gib, source); err != nil {
		return answer{}, err
	}
	w.Volumes = append(w.Volumes, v)
	return accepted("volume", v.shown())
}

func accepted(name string, value any) (answer, error) {
	return answer{status: http.StatusAccepted, body: map[string]any{name: value}}, nil
}

func deleteVolume(s *Simulator, r *http.Request) (answer, error) {
	v := s.world.volume(r.PathValue("id"))
	if v == nil {
		return answer{}, notFound("Volume", r.PathValue("id"))
	}
	if v.Status != available || find(s.world.Snapshots, func(c *Snapshot) bool { return c.VolumeID == v.ID }) != nil {
		return answer{}, badRequest("Invalid volume: Volume status must be available or error or error_restoring or " +
			"error_extending or error_managing and must not be migrating, attached, belong to a group, have " +
			"snapshots, awaiting a transfer, or be disassociated from snapshots after volume transfer.")
	}
	if err := s.options.Disks.Remove(v.ID); err != nil {
		return answer{}, err
	}
	s.volumeState(v, deleting)
	return answer{status: http.StatusAccepted}, nil
}

// extendVolume answers the only action that there is.
func extendVolume(s *Simulator, r *http.Request) (answer, error) {
	v := s.world.volume(r.PathValue("id"))
	if v == nil {
		return answer{}, notFound("Volume", r.PathValue("id"))
	}
	var wanted struct {
		NewSize int `json:"new_size"`
	}
	if err := read(r, "os-extend", &wanted); err != nil {
		return answer{}, err
	}
	if v.Status != available && (v.Status != inUse || minorVersion(r) < firstOnlineExtend) {
		return answer{}, invalidVolume(v, "'available'")
	}
	if wanted.NewSize <= v.Size {
		return answer{}, badRequest(
			"Invalid input received: New size for extend must be greater than current size. "+
				"(current: %d, extended: %d).", v.Size, wanted.NewSize,
		)
	}
	if err := admit(
		"volumes", -1, 0, s.world.Quota.Gigabytes, s.world.size(), wanted.NewSize-v.Size,
	); err != nil {
		return answer{}, err
	}
	if err := s.options.Disks.Resize(v.ID, int64(wanted.NewSize)*gib); err != nil {
		return answer{}, err
	}
	v.Size = wanted.NewSize
	s.volumeState(v, extending)
	return answer{status: http.StatusAccepted}, nil
}

// minorVersion returns the second number of the API's version that a client asks for, such as 42 of "volume 3.42".
func minorVersion(r *http.Request) int {
	_, version, _ := strings.Cut(r.Header.Get("OpenStack-API-Version"), "volume 3.")
	minor, _ := strconv.Atoi(version)
	return minor
}

type snapshotRequest struct {
	Name        string            `json:"name"`
	Description string            `json:"description"`
	VolumeID    string            `json:"volume_id"`
	Force       bool              `json:"force"`
	Metadata    map[string]string `json:"metadata"`
}

func createSnapshot(s *Simulator, r *http.Request) (answer, error) {
	w := s.world
	var wanted snapshotRequest
	if err := read(r, "snapshot", &wanted); err != nil {
		return answer{}, err
	}
	v := w.volume(wanted.VolumeID)
	if v == nil {
		return answer{}, notFound("Volume", wanted.VolumeID)
	}
	if v.Status != available && (v.Status != inUse || !wanted.Force) {
		return answer{}, invalidVolume(v, "available")
	}
	if err := admit(
		"snapshots", w.Quota.Snapshots, len(w.Snapshots), w.Quota.Gigabytes, w.size(), v.Size,
	); err != nil {
		return answer{}, err
	}
	c := Snapshot{
		ID: newID(), Name: wanted.Name, Description: wanted.Description, Status: creating, VolumeID: v.ID, Size: v.Size,
		Metadata: wanted.Metadata, Created: cinderTime(s.now()), Settles: s.now().Add(s.options.Settle),
	}
	if err := s.options.Disks.Snapshot(v.ID, c.ID); err != nil {
		return answer{}, err
	}
	w.Snapshots = append(w.Snapshots, c)
	return accepted("snapshot", c)
}

func listSnapshots(s *Simulator, r *http.Request) (answer, error) {
	found, err := query(r, s.world.Snapshots, map[string]func(Snapshot) []string{
		"name":      func(c Snapshot) []string { return one(c.Name) },
		"volume_id": func(c Snapshot) []string { return one(c.VolumeID) },
	})
	if err != nil {
		return answer{}, err
	}
	return ok("snapshots", found)
}

func getSnapshot(s *Simulator, r *http.Request) (answer, error) {
	c := s.world.snapshot(r.PathValue("id"))
	if c == nil {
		return answer{}, notFound("Snapshot", r.PathValue("id"))
	}
	return ok("snapshot", c)
}

func deleteSnapshot(s *Simulator, r *http.Request) (answer, error) {
	c := s.world.snapshot(r.PathValue("id"))
	if c == nil {
		return answer{}, notFound("Snapshot", r.PathValue("id"))
	}
	if err := s.options.Disks.Remove(c.ID); err != nil {
		return answer{}, err
	}
	c.Status, c.Settles = deleting, s.now().Add(s.options.Settle)
	return answer{status: http.StatusAccepted}, nil
}

func listVolumeTypes(s *Simulator, _ *http.Request) (answer, error) {
	return ok("volume_types", s.world.VolumeTypes)
}

func listVolumeZones(*Simulator, *http.Request) (answer, error) {
	return ok("availabilityZoneInfo", []map[string]any{
		{"zoneName": LabZone, "zoneState": map[string]bool{"available": true}},
	})
}

func volumeQuota(s *Simulator, r *http.Request) (answer, error) {
	if r.URL.Query().Get("usage") != "true" {
		return answer{}, failure{http.StatusNotImplemented, "the simulator has quotas with their usage only"}
	}
	usage := func(limit, used int) map[string]int { return map[string]int{"limit": limit, "in_use": used} }
	w := s.world
	return ok("quota_set", map[string]any{
		"id": w.Project.ID, "volumes": usage(w.Quota.Volumes, len(w.Volumes)),
		"snapshots": usage(w.Quota.Snapshots, len(w.Snapshots)), "gigabytes": usage(w.Quota.Gigabytes, w.size()),
	})
}

// attachVolume is Nova's part: it reserves the volume at Cinder, and gives the server a device.
func attachVolume(s *Simulator, r *http.Request) (answer, error) {
	server := s.world.server(r.PathValue("id"))
	if server == nil {
		return answer{}, notFound("Instance", r.PathValue("id"))
	}
	var wanted struct {
		VolumeID string `json:"volumeId"`
	}
	if err := read(r, "volumeAttachment", &wanted); err != nil {
		return answer{}, err
	}
	v := s.world.volume(wanted.VolumeID)
	if v == nil {
		return answer{}, notFound("Volume", wanted.VolumeID)
	}
	if v.Status != available {
		return answer{}, invalidVolume(v, "available or downloading to reserve")
	}
	if err := s.options.Disks.Attach(v.ID, s.world.fixedIP(server.ID)); err != nil {
		return answer{}, err
	}
	device := s.world.nextDevice(server.ID)
	v.Attachments = []VolumeAttachment{
		{ID: v.ID, VolumeID: v.ID, AttachmentID: newID(), ServerID: server.ID, Device: device},
	}
	s.volumeState(v, attaching)
	return ok("volumeAttachment", map[string]string{
		"id": v.ID, "volumeId": v.ID, "serverId": server.ID, "device": device,
	})
}

// nextDevice is the first name of a device of virtio that no volume of the server has; /dev/vda is its root disk.
func (w *World) nextDevice(server string) string {
	device := func(letter byte) string { return "/dev/vd" + string(letter) }
	letter := byte('b')
	for slices.ContainsFunc(w.Volumes, func(v Volume) bool {
		return v.attachedTo(server) && v.Attachments[0].Device == device(letter)
	}) {
		letter++
	}
	return device(letter)
}

func (w *World) fixedIP(server string) (address netip.Addr) {
	for _, p := range w.Ports {
		if p.DeviceID == server && len(p.FixedIPs) > 0 {
			address, _ = netip.ParseAddr(p.FixedIPs[0].IPAddress)
		}
	}
	return address
}

func detachVolume(s *Simulator, r *http.Request) (answer, error) {
	server, v := r.PathValue("id"), s.world.volume(r.PathValue("volume"))
	if s.world.server(server) == nil {
		return answer{}, notFound("Instance", server)
	}
	if v == nil || !v.attachedTo(server) {
		return answer{}, failure{
			http.StatusNotFound, "Instance " + server + " is not attached to volume " + r.PathValue("volume") + ".",
		}
	}
	if v.Status != inUse {
		return answer{}, invalidVolume(v, "in-use")
	}
	return answer{status: http.StatusAccepted}, s.detach(v)
}

// detach takes the device away, also if the server has it mounted: the kernel of a VM lets disks of virtio go.
func (s *Simulator) detach(v *Volume) error {
	if _, err := s.options.Disks.Detach(v.ID, s.world.fixedIP(v.Attachments[0].ServerID), true); err != nil {
		return err
	}
	s.volumeState(v, detaching)
	return nil
}

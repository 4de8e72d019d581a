package machine

import "strings"

// Settings are the variables of ops-files/lab.yml: production's values, except for what the machine lacks. Notes say
// what that is; the first one is about what no VM of the lab has.
func (m Machine) Settings() (variables map[string]any, notes []string) {
	variables = map[string]any{
		"lab_fail_cgroup_v1": true, "lab_fail_swap_on": true, "lab_restrict_oom_score_adj": false,
		"lab_containerd_oom_score": -999,
	}
	notes = []string{"VMs of the lab have no systemd: containerd runs with cgroup_driver: cgroupfs."}
	if !m.cgroupV2() {
		variables["lab_fail_cgroup_v1"] = false
		notes = append(notes, "This machine has cgroup v1: kubelet runs with fail_cgroup_v1: false.")
	}
	if strings.Count(m.read("/proc/swaps"), "\n") > 0 {
		variables["lab_fail_swap_on"] = false
		notes = append(notes, "This machine has swap: kubelet runs with fail_swap_on: false.")
	}
	if !m.capable(capSysResource) {
		variables["lab_restrict_oom_score_adj"], variables["lab_containerd_oom_score"] = true, 0
		notes = append(notes, "This machine's root lacks CAP_SYS_RESOURCE: containerd runs with "+
			"restrict_oom_score_adj: true and oom_score: 0.")
	}
	return variables, notes
}

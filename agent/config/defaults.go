package config

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/commensal-io/commensal/internal/strictyaml"
)

// sources says where each default comes from; printed beside it by `config defaults`.
var sources = map[string]string{
	"profile":                                   "cpi2: the seed's own values; single-node: few tasks, short windows",
	"mode":                                      "off, observe (record what would be done) or enforce",
	"signals":                                   "cpi needs hardware counters; slowdown is (cpu + run-queue delay) / cpu",
	"cpi2.collection_granularity":               "CPI2 table 2",
	"cpi2.sampling_duration":                    "CPI2 table 2: 10 seconds",
	"cpi2.sampling_frequency":                   "CPI2 table 2: every 1 minute",
	"cpi2.aggregation_granularity":              "CPI2 table 2: job x CPU type",
	"cpi2.predicted_cpi_recalculated":           "CPI2 table 2: every 24 hours (goal: 1 hour)",
	"cpi2.required_cpu_usage":                   "CPI2 table 2: 0.25 CPU-sec/sec; below it a window says nothing",
	"cpi2.outlier_threshold_1":                  "CPI2 table 2: 2 standard deviations",
	"cpi2.outlier_threshold_2":                  "CPI2 table 2: 3 violations in 5 minutes",
	"cpi2.antagonist_correlation_threshold":     "CPI2 table 2: 0.35; for the cpi signal",
	"cpi2.hard_capping_quota":                   "CPI2 table 2: 0.1 CPU-sec/sec; for batch and critical",
	"cpi2.hard_capping_duration":                "CPI2 table 2: 5 mins",
	"cpi2.hard_capping_quota_best_effort":       "CPI2 section 5: 0.01 CPU-sec/sec for best-effort",
	"cpi2.hard_capping_period":                  "CPI2 section 5: 25 ms in each 250 ms",
	"cpi2.correlation_window":                   "CPI2 section 4.2: 10 minutes",
	"cpi2.analysis_every":                       "CPI2 section 4.2: at most one attempt each second",
	"cpi2.age_weight":                           "CPI2 section 3.1: about 0.9",
	"cpi2.min_tasks":                            "CPI2 section 3.1: not with fewer than 5 tasks",
	"cpi2.min_samples_per_task":                 "CPI2 section 3.1: nor fewer than 100 samples per task",
	"cpi2.recalculate_on_doubling":              "also when the sample has doubled and at most 5 % were outliers",
	"cpi2.recovered_windows":                    "windows in a row under the threshold that mean recovered",
	"cpi2.verify_windows":                       "windows judged before a cap that does not help is taken back",
	"cpi2.search_windows":                       "analyses before a search for the antagonist gives up",
	"cpi2.max_rounds":                           "suspects held one after the other in one incident",
	"cpi2.retry_after":                          "peace for a victim that could not be helped",
	"slowdown.min_rise":                         "least distance of the outlier threshold from the mean",
	"slowdown.antagonist_correlation_threshold": "calibrated for slowdown; see policy/antagonist",
	"slowdown.ratio_bound":                      "how many times the threshold one window counts at most",
	"slowdown.min_suspect_cpu":                  "CPU-sec/sec that a suspect must use while the victim suffers",
	"slowdown.margin_over_median":               "by how much a suspect must stand out from the others",
	"slowdown.margin_over_steady":               "by how much it must score above a steady suspect; 0: no such rule",
	"cpi2.margin_over_median":                   "by how much a suspect must stand out from the others; 0: as CPI2",
	"cpi2.margin_over_steady":                   "by how much it must score above a steady suspect; 0: as CPI2",
	"groups.enabled":                            "beyond CPI2 (section 4.2's limit): several tasks that hurt together",
	"groups.max_members":                        "tasks in one group",
	"groups.explained":                          "least share of the victim's variance that a group explains",
	"groups.gain":                               "least share of it that each member adds",
	"groups.chance":                             "that the luckiest innocent of all looks as guilty as a member",
	"groups.correlation_threshold":              "of the group's pressure; 0: that of a single suspect",
	"groups.help_share":                         "share of the distress that a cap must take away to be kept and added to",
	"groups.probe_windows":                      "windows for which a member is released on trial once the victim is well",
	"feedback.enabled":                          "beyond CPI2 (section 9): caps no tighter than the victim needs",
	"feedback.allowed_sigmas":                   "degradation that the victim may suffer; 0: its outlier threshold",
	"feedback.step":                             "by how much a cap is loosened at once, of what it took away",
	"feedback.loosen_after":                     "good windows in a row before a cap is loosened",
	"feedback.tighten_after":                    "bad windows in a row before it is tightened",
	"feedback.retry_windows":                    "good windows before a failed level is tried again, doubled each time",
	"feedback.mild_excess":                      "up to this share above its threshold the first cap takes half; 0: never",
	"feedback.max_duration":                     "of a hold with all its renewals",
	"confirm.enabled":                           "beyond CPI2 (section 4.2): a short nudge where the evidence is split",
	"confirm.margin":                            "of correlation, within which the evidence is split",
	"confirm.windows":                           "windows for which a suspect is nudged",
	"confirm.usage_share":                       "share of its CPU that it keeps; 0: the quota of a cap",
	"confirm.drop":                              "share of the victim's excess that must go away",
	"confirm.sigmas":                            "least size of that, in standard errors",
	"confirm.max_per_incident":                  "nudges in one incident",
	"confirm.max_per_hour":                      "nudges on the node in an hour",
	"cpuset.mode":                               "seed 000: LC and BE cores apart; off, observe or enforce",
	"cpuset.floor_cores":                        "physical cores that BE keeps whatever LC needs",
	"cpuset.floor_share":                        "the same as a share of those online; the greater holds",
	"cpuset.park_cap":                           "what each BE task may use while BE has no core; only with both floors at 0",
	"cpuset.wait":                               "LC gets the CPUs with which so few of its requests wait (Erlang C)",
	"cpuset.target_siblings":                    "seed 001 section 4.1: 45 %, where a core has several threads",
	"cpuset.full_utilisation":                   "of LC's CPUs in one pulse; above it LC gets all but the floor at once",
	"cpuset.rise":                               "LC's size follows a rising mean load with this time constant",
	"cpuset.fall":                               "and a falling one with this",
	"cpuset.give_every":                         "BE gets what LC does not need, so long after the last move",
	"cpuset.returns_per_min":                    "LC takes back what was just given so often; beyond that nothing is given",
	"cpuset.blind":                              "LC's load may be unreadable for so long",
	"cpuset.sockets":                            "spread: BE on all sockets alike; gather: one first",
	"cpu_pool.mode":                             "seed 001 section 4.1: off, observe or enforce",
	"cpu_pool.interval":                         "seed 001 section 4.1: every 5 seconds",
	"cpu_pool.utilisation_high":                 "seed 001 section 4.1: U_H = 45 %",
	"cpu_pool.increase":                         "additive step, of the original quota",
	"cpu_pool.decrease":                         "seed 001 section 4.1: half is left",
	"cpu_pool.max_factor":                       "times the original quota at most",
	"cpu_pool.bursty_below":                     "only who uses less than this of its original quota on average gets more",
	"cpu_pool.below_original":                   "what the seed leaves open: also below the original quota",
	"cpu_pool.floor_factor":                     "then not below this share of it",
	"cpu_pool.give_back":                        "a quota not used up for so long goes a step back; 0: stays",
	"cpu_pool.early_utilisation":                "between two periods everything comes down above it; 0: never",
	"cpu_pool.early":                            "over so long",
	"burst.mode":                                "seed 001 section 4.1: off, observe or enforce",
	"burst.bucket":                              "seed 001 section 4.1: k = 10 times the quota",
	"burst.user_space":                          "what the kernel's bucket is too small for is carried by raising quotas",
	"burst.max_raise":                           "a quota raised for a burst, times the original",
	"burst.min_raise":                           "less is not worth two writes",
	"burst.max_overspend":                       "beyond a bucket in the kernel at worst, times the quota",
	"burst.near_share":                          "who used so much of what it could is taken to burst",
	"burst.quiet":                               "a burst is over when it was not seen for so long",
	"burst.rest":                                "between the end of a raise and the next one of a task",
	"burst.max_writes_per_sec":                  "of all raises together",
	"agent.pulse":                               "the fast reading, where cpuset or burst enforce",
	"limits.max_held_tasks":                     "tasks held at once; the first may always be held",
	"limits.max_be_cpu_taken":                   "share of the node's BE CPU held back at once, beyond the first task",
	"agent.kill_switch":                         "while this file exists everything is released and nothing is held",
	"agent.socket_group":                        "members may operate the agent; root may always",
	"agent.metrics_listen":                      "Prometheus; empty: none",
	"record.max_bytes":                          "samples and decisions, oldest dropped first",
}

// Print returns a configuration as YAML with the source of each default beside it.
func (c *Config) Print() ([]byte, error) {
	var doc yaml.Node
	if err := doc.Encode(c); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	for key, text := range sources {
		if n := strictyaml.Find(&doc, key); n != nil {
			comment(&doc, n, text)
		}
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(&doc); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return b.Bytes(), nil
}

// comment puts a text behind a scalar, or behind the key of anything larger.
func comment(parent, n *yaml.Node, text string) {
	if n.Kind == yaml.ScalarNode {
		n.LineComment = text
		return
	}
	for i, c := range parent.Content {
		if c == n && i > 0 {
			parent.Content[i-1].LineComment = text
			return
		}
		comment(c, n, text)
	}
}

package survey

import (
	"slices"
	"strings"

	"github.com/commensal-io/commensal/internal/glob"
)

// The names below are of programs that are the same thing wherever they run. They are a
// guess's weakest reason: what somebody set (a weight, a QoS class) and what a process does
// (listen) count before.

// infrastructure are units that keep a host going. They are left alone: a cgroup that no rule
// claims is never touched, and what it uses counts as the node's own.
var infrastructure = []string{
	"systemd-*", "_*", "init.scope", "user@*", "user-runtime-dir@*", "session-*.scope", "getty@*", "serial-getty@*", "dbus*", "polkit*", "ssh.*", "sshd*",
	"cron.*", "crond.*", "anacron*", "atd.*", "rsyslog*", "syslog*", "auditd*", "udisks2*", "upower*", "colord*", "ModemManager*", "NetworkManager*", "networkd-*",
	"networking.*", "wpa_supplicant*", "avahi-*", "bluetooth*", "accounts-daemon*", "packagekit*", "snapd*", "snap.*", "apt-*", "dnf-*", "unattended-upgrades*",
	"irqbalance*", "acpid*", "chrony*", "ntp*", "multipathd*", "lvm2-*", "mdmonitor*", "smartd*", "thermald*", "tuned*", "rngd*", "qemu-guest-agent*", "cloud-*",
	"google-*", "amazon-ssm-agent*", "walinuxagent*", "waagent*", "firewalld*", "fail2ban*", "nftables*", "iscsid*", "rpcbind*", "rpc-*", "nfs-*", "blk-availability*",
	"docker.service", "containerd.service", "crio.service", "cri-docker*", "kubelet*", "k3s*", "rke2*", "podman*", "libvirtd*", "virt*", "libpod-conmon-*",
	"crio-conmon-*", "ecs.*", "commensal*", "node_exporter*", "prometheus-node-exporter*", "emergency.*", "rescue.*", "kmod*", "dracut*", "plymouth*", "gdm*", "lightdm*",
}

// services are programs that somebody waits for.
var services = []string{
	"nginx", "apache2", "httpd", "haproxy", "envoy", "traefik", "caddy", "varnish", "lighttpd", "squid", "memcached", "redis", "valkey", "keydb", "postgres", "postgresql",
	"mysql", "mysqld", "mariadb", "mongod", "mongodb", "cassandra", "scylla", "elasticsearch", "opensearch", "solr", "rabbitmq", "kafka", "zookeeper", "etcd", "consul",
	"vault", "tomcat", "fpm", "gunicorn", "uwsgi", "named", "bind9", "unbound", "coredns", "dovecot", "postfix", "exim4", "influxdb", "clickhouse", "minio", "nats",
	"mosquitto", "web", "api", "frontend", "gateway", "ingress",
}

// batch are words for work that nobody waits for.
var batch = []string{
	"batch", "scratch", "background", "besteffort", "best-effort", "backup", "restic", "borg", "nightly", "cronjob", "job", "jobs", "etl", "crawler", "train", "training", "spark", "hadoop",
	"nodemanager", "slurmd", "condor", "boinc", "ffmpeg", "transcode", "encoder", "render", "runner", "buildkite", "jenkins", "builder", "ci", "updatedb", "logrotate", "fstrim",
}

func isInfrastructure(unit string) bool {
	return slices.ContainsFunc(infrastructure, func(p string) bool {
		if !strings.Contains(p, ".") && !strings.HasSuffix(p, "*") {
			p += ".*"
		}
		return glob.Match(p, unit)
	})
}

// wordOf returns the word of a list that a name has between its separators, "" if none.
func wordOf(list []string, name string) string {
	parts := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return strings.ContainsRune("-_.@/\\0123456789", r) })
	whole := strings.ToLower(name)
	for _, w := range list {
		if slices.Contains(parts, w) || strings.HasPrefix(whole, w+"-") || strings.HasPrefix(whole, w+"@") || strings.HasPrefix(whole, w+".") {
			return w
		}
	}
	return ""
}

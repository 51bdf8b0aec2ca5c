//! varnishstat's counters. What there are several of goes into a label, not into the name.

use super::exposition::Families;
use crate::varnishstat::Counter;

pub(super) fn add(to: &mut Families, counters: &[Counter]) {
    for counter in counters {
        let Counter { group, instance, name, description, grows, value } = counter;
        let mut labels: Vec<(&str, &str)> = Vec::new();
        let prefix = match group.as_str() {
            "VBE" => {
                let (vcl, backend) = instance.split_once('.').unwrap_or(("", instance));
                labels.extend([("vcl", vcl), ("backend", backend)]);
                "backend".to_owned()
            }
            "SMA" | "SMF" | "SMU" | "MSE" => {
                labels.push(("stevedore", instance));
                group.to_ascii_lowercase()
            }
            "LCK" => {
                labels.push(("lock", instance));
                "lock".to_owned()
            }
            "MEMPOOL" => {
                labels.push(("pool", instance));
                "mempool".to_owned()
            }
            other => {
                if !instance.is_empty() {
                    labels.push(("id", instance));
                }
                other.to_ascii_lowercase()
            }
        };
        if group == "VBE" && name == "happy" {
            // 64 probes as bits; the last one counts.
            let help = "Whether the last probe succeeded; 0 where there is none";
            to.gauge("varnish_backend_up", help, &labels, value & 1);
            continue;
        }
        let name = valid(&format!("varnish_{prefix}_{name}"));
        if *grows {
            to.counter(&name, description, &labels, *value);
        } else {
            to.gauge(&name, description, &labels, *value);
        }
    }
}

/// VMODs name their counters as they like.
fn valid(name: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
    name.chars().map(fits).collect()
}

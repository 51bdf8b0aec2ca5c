//! What conditions say that are not as they should be, as lines for `status`: of a cluster, and of one machine.

use translate::status::{ACCEPTED, PARAMETERS_VALID, PROGRAMMED, RESOLVED_REFS};

/// A condition of a Gateway, or of one of its listeners.
pub(crate) struct Condition<'a> {
    /// Absent: the Gateway's own.
    pub(crate) listener: Option<&'a str>,
    pub(crate) kind: &'a str,
    /// `True`, `False` or `Unknown`
    pub(crate) status: &'a str,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
}

impl Condition<'_> {
    fn is_bad(&self) -> bool {
        match self.kind {
            ACCEPTED | PROGRAMMED | RESOLVED_REFS => self.status != "True",
            PARAMETERS_VALID => self.status == "False",
            _ => false,
        }
    }
}

/// Each reason once; the Gateway's own come first.
pub(crate) fn problems<'a>(all: impl Iterator<Item = Condition<'a>>) -> Vec<String> {
    let mut told: Vec<Condition<'_>> = Vec::new();
    let mut lines = Vec::new();
    for condition in all.filter(Condition::is_bad) {
        let Condition { listener, reason, message, .. } = condition;
        // What is true of the Gateway its listeners need not repeat.
        let is_said = |before: &Condition<'_>| match before.listener {
            None => {
                let names = |it: &str| before.message.contains(it);
                before.message == message
                    || !message.is_empty() && names(message) && names(listener.unwrap_or_default())
            }
            Some(_) => before.listener == listener && before.message == message,
        };
        if told.iter().any(is_said) {
            continue;
        }
        let whose = listener.map(|name| format!("listener {name}: ")).unwrap_or_default();
        lines.push(format!("{whose}{reason}: {message}"));
        told.push(condition);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_said_once() {
        let condition =
            |listener, kind, reason, message| Condition { listener, kind, status: "False", reason, message };
        let (http, https) = (Some("http"), Some("https"));
        let all = [
            condition(None, ACCEPTED, "ListenersNotValid", "No listener is served: listener http: port 0"),
            condition(None, PARAMETERS_VALID, "InvalidParameters", "no such object"),
            condition(None, "Other", "Other", "nobody asked"),
            condition(http, ACCEPTED, "PortUnavailable", "port 0"),
            condition(https, RESOLVED_REFS, "InvalidCertificateRef", "no Secret"),
            condition(https, PROGRAMMED, "Invalid", "no Secret"),
        ];
        assert_eq!(
            problems(all.into_iter()),
            [
                "ListenersNotValid: No listener is served: listener http: port 0",
                "InvalidParameters: no such object",
                "listener https: InvalidCertificateRef: no Secret",
            ]
        );
    }
}

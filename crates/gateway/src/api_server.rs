//! What an API server's refusal means to the user of the command line.

use std::error::Error as _;

/// In one sentence, with what to do about it.
pub(crate) fn said(error: &kube::Error) -> anyhow::Error {
    anyhow::anyhow!("{}", sentence(error))
}

pub(crate) fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// Of a kind that the cluster does not have, or of an object.
pub(crate) fn is_absent(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

pub(crate) fn sentence(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => match status.code {
            401 => "the API server does not take these credentials (401): renew those of the kubeconfig, \
                    or choose others by --kubeconfig or --context"
                .to_owned(),
            403 => format!("{} (403): ask for this right", status.message.trim_end_matches([':', ' '])),
            code => format!("{} ({code})", status.message),
        },
        kube::Error::Service(_) | kube::Error::HyperError(_) => format!(
            "the API server cannot be reached ({}): is the cluster up, and does the kubeconfig name its address?",
            root(error)
        ),
        other => other.to_string(),
    }
}

/// The innermost reason: what is around it only says that something failed.
fn root(error: &kube::Error) -> String {
    let mut cause = error.source();
    let mut text = error.to_string();
    while let Some(inner) = cause {
        text = inner.to_string();
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn refusals_are_one_sentence() {
        let refused = |code, message: &str| {
            let status = Status { code, message: message.to_owned(), ..Status::default() };
            kube::Error::Api(Box::new(status))
        };
        let forbidden = refused(403, "pods is forbidden: User \"a\" cannot list resource \"pods\"");
        assert!(is_forbidden(&forbidden) && !is_absent(&forbidden));
        assert_eq!(
            sentence(&forbidden),
            "pods is forbidden: User \"a\" cannot list resource \"pods\" (403): ask for this right"
        );
        assert!(sentence(&refused(401, "Unauthorized")).contains("renew"));
        assert!(is_absent(&refused(404, "nothing")));
    }
}

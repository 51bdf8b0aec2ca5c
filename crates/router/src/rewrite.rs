//! New paths for old: URLRewrite, and the path half of RequestRedirect.

use model::filters::{PathType, UrlRewrite};
use smallvec::SmallVec;

use crate::edit::EditRequest;
use crate::path::{normal_prefix, split};

/// URLs up to this length are made without allocating.
pub type Url = SmallVec<[u8; 512]>;

/// What becomes of the path. The query always stays.
#[derive(Debug, Clone)]
pub(crate) enum PathChange {
    Keep,
    Full(Box<[u8]>),
    /// The matched prefix, without final slash, and what stands in its place, without final slash.
    Prefix {
        matched: Box<[u8]>,
        replacement: Box<[u8]>,
    },
}

impl PathChange {
    /// `prefix` is the rule's path where it is a PathPrefix; another kind of match has no prefix to replace.
    pub(crate) fn new(
        kind: Option<PathType>,
        full: Option<&str>,
        replacement: Option<&str>,
        prefix: Option<&str>,
    ) -> Self {
        match (kind, full, replacement, prefix) {
            (Some(PathType::ReplaceFullPath), full, _, _) => {
                Self::Full(rooted(full.unwrap_or_default()).into_bytes().into())
            }
            (Some(PathType::ReplacePrefixMatch), _, replacement, Some(prefix)) => Self::Prefix {
                matched: normal_prefix(prefix).into(),
                replacement: rooted(replacement.unwrap_or_default()).trim_end_matches('/').as_bytes().into(),
            },
            _ => Self::Keep,
        }
    }

    /// Appends the new path and the old query.
    pub(crate) fn append(&self, url: &[u8], to: &mut Url) {
        let (path, query) = split(url);
        match self {
            Self::Keep => to.extend_from_slice(path),
            Self::Full(new) => to.extend_from_slice(new),
            Self::Prefix { matched, replacement } => {
                let rest = path.strip_prefix(&**matched).unwrap_or(path);
                to.extend_from_slice(replacement);
                to.extend_from_slice(rest);
                if replacement.is_empty() && rest.is_empty() {
                    to.push(b'/');
                }
            }
        }
        if path.len() < url.len() {
            to.push(b'?');
            to.extend_from_slice(query);
        }
    }
}

/// A path begins with a slash, whatever the filter says.
fn rooted(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

#[derive(Debug, Clone)]
pub(crate) struct Rewrite {
    hostname: Option<Box<str>>,
    path: PathChange,
}

impl Rewrite {
    pub(crate) fn new(from: &UrlRewrite, prefix: Option<&str>) -> Self {
        let (full, replacement) = (from.replace_full_path.as_deref(), from.replace_prefix_match.as_deref());
        Self {
            hostname: from.hostname.as_deref().map(Into::into),
            path: PathChange::new(from.path_type, full, replacement, prefix),
        }
    }

    pub(crate) fn apply(&self, url: &[u8], to: &mut impl EditRequest) {
        if let Some(host) = &self.hostname {
            to.set_host(host);
        }
        if !matches!(self.path, PathChange::Keep) {
            let mut new = Url::new();
            self.path.append(url, &mut new);
            to.set_url(&new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(matched: &str, replacement: &str, url: &str) -> String {
        let change =
            PathChange::new(Some(PathType::ReplacePrefixMatch), None, Some(replacement), Some(matched));
        let mut to = Url::new();
        change.append(url.as_bytes(), &mut to);
        String::from_utf8(to.to_vec()).unwrap()
    }

    #[test]
    fn prefixes_are_replaced_as_the_gateway_api_lists_it() {
        for (url, matched, replacement, expected) in [
            ("/foo/bar", "/foo", "/xyz", "/xyz/bar"),
            ("/foo/bar", "/foo", "/xyz/", "/xyz/bar"),
            ("/foo/bar", "/foo/", "/xyz", "/xyz/bar"),
            ("/foo/bar", "/foo/", "/xyz/", "/xyz/bar"),
            ("/foo", "/foo", "/xyz", "/xyz"),
            ("/foo/", "/foo", "/xyz", "/xyz/"),
            ("/foo/bar", "/foo", "", "/bar"),
            ("/foo/", "/foo", "", "/"),
            ("/foo", "/foo", "", "/"),
            ("/foo/", "/foo", "/", "/"),
            ("/foo", "/foo", "/", "/"),
            ("/bar", "/", "/xyz", "/xyz/bar"),
            ("/foo?a=/foo", "/foo", "/xyz", "/xyz?a=/foo"),
            ("/foo/?", "/foo", "/xyz", "/xyz/?"),
        ] {
            assert_eq!(prefix(matched, replacement, url), expected, "{url} {matched} {replacement}");
        }
    }

    #[test]
    fn the_full_path_is_replaced_and_the_query_stays() {
        let change = PathChange::new(Some(PathType::ReplaceFullPath), Some("/one"), None, Some("/foo"));
        let mut to = Url::new();
        change.append(b"/foo/bar?x=1", &mut to);
        assert_eq!(&to[..], b"/one?x=1");
    }
}

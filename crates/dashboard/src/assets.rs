//! The page. It is part of the program: no build step, and nothing comes from elsewhere.

use serde_json::Value;

use crate::answer::{self, Answer};

const PAGE: &str = include_str!("../assets/index.html");
/// A block of data, which browsers do not execute: the page's Content-Security-Policy allows no script in it.
const BEGIN: &str = "<script type=\"application/json\" id=\"first\">";

const ASSETS: [(&str, &str, &str); 5] = [
    ("/app.js", "text/javascript; charset=utf-8", include_str!("../assets/app.js")),
    ("/picture.js", "text/javascript; charset=utf-8", include_str!("../assets/picture.js")),
    ("/plot.js", "text/javascript; charset=utf-8", include_str!("../assets/plot.js")),
    ("/style.css", "text/css; charset=utf-8", include_str!("../assets/style.css")),
    ("/icon.svg", "image/svg+xml", include_str!("../assets/icon.svg")),
];

pub(crate) fn find(path: &str) -> Option<Answer> {
    ASSETS.iter().find(|(at, _, _)| *at == path).map(|(_, kind, text)| answer::text(kind, *text))
}

/// The page with `first`, its first state, in it.
pub(crate) fn page(first: &Value) -> String {
    // Texts of users must not end the block: `</script>` and `<!--` begin with `<`, which JSON may escape.
    let data = first.to_string().replace('<', "\\u003c");
    match PAGE.split_once(BEGIN) {
        Some((head, tail)) => [head, BEGIN, &data, tail].concat(),
        None => PAGE.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_state_is_part_of_the_page_and_cannot_leave_its_block() {
        let first = json!({ "name": "</script><script>alert(1)</script><!--" });
        let page = page(&first);
        let (_, tail) = page.split_once(BEGIN).expect("the block");
        let (data, _) = tail.split_once("</script>").expect("the end of the block");
        assert!(!data.contains('<'), "{data}");
        assert_eq!(serde_json::from_str::<Value>(data).expect("JSON"), first);
        assert_eq!(page.matches("alert(1)").count(), 1);
    }
}

//! The page. It is part of the program: no build step, and nothing comes from elsewhere.

use crate::answer::{self, Answer};

const ASSETS: [(&str, &str, &str); 6] = [
    ("/", "text/html; charset=utf-8", include_str!("../assets/index.html")),
    ("/app.js", "text/javascript; charset=utf-8", include_str!("../assets/app.js")),
    ("/picture.js", "text/javascript; charset=utf-8", include_str!("../assets/picture.js")),
    ("/plot.js", "text/javascript; charset=utf-8", include_str!("../assets/plot.js")),
    ("/style.css", "text/css; charset=utf-8", include_str!("../assets/style.css")),
    ("/icon.svg", "image/svg+xml", include_str!("../assets/icon.svg")),
];

pub(crate) fn find(path: &str) -> Option<Answer> {
    ASSETS.iter().find(|(at, _, _)| *at == path).map(|(_, kind, text)| answer::text(kind, *text))
}

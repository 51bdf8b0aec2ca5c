//! The front's table of routes, compiled from the same files that ghost reads.

use std::sync::Arc;

use model::ghost::Config;
use router::Router;

use crate::feed::GhostBase;

/// Keeps the front's table at the newest files.
#[derive(Debug)]
pub(crate) struct Routes {
    http: Arc<front::Http>,
    /// The file that the table was made of.
    ghost: Option<Arc<[u8]>>,
    router: Option<Arc<Router>>,
    base: Option<(GhostBase, Arc<Router>)>,
}

impl Routes {
    pub(crate) fn new(http: Arc<front::Http>) -> Self {
        Self { http, ghost: None, router: None, base: None }
    }

    /// Brings the front to these files. An error leaves its table as it is.
    pub(crate) async fn take(&mut self, ghost: &Arc<[u8]>, base: Option<&GhostBase>) -> Result<(), String> {
        if self.ghost.as_ref().is_some_and(|known| known == ghost) {
            return Ok(());
        }
        let (file, base, known, old) =
            (Arc::clone(ghost), base.cloned(), self.base.clone(), self.router.clone());
        // Thousands of routes take their time, and the task has others to serve.
        let compiled = tokio::task::spawn_blocking(move || compile(&file, base, known, old.as_deref()));
        let (router, base) = compiled.await.map_err(|e| e.to_string())??;
        let router = Arc::new(router);
        self.http.route_by(Arc::clone(&router));
        (self.ghost, self.router, self.base) = (Some(Arc::clone(ghost)), Some(router), base);
        Ok(())
    }
}

type Compiled = (Router, Option<(GhostBase, Arc<Router>)>);

fn compile(
    file: &[u8],
    base: Option<GhostBase>,
    known: Option<(GhostBase, Arc<Router>)>,
    old: Option<&Router>,
) -> Result<Compiled, String> {
    let parse = |bytes: &[u8]| serde_json::from_slice::<Config>(bytes).map_err(|e| e.to_string());
    let whole = |config: &Config| Router::compile(config).map_err(|e| e.to_string());
    let config = parse(file)?;
    let (mut compiled, base) = match base.filter(|_| config.base.is_some()) {
        None => (whole(&config)?, None),
        Some(base) => {
            let below = match known.filter(|(known, _)| *known == base) {
                Some((_, router)) => router,
                None => Arc::new(whole(&parse(&base.bytes)?)?.router),
            };
            match Router::compile_over(&config, &below).map_err(|e| e.to_string())? {
                Some(upper) => (upper, Some((base, below))),
                None => (whole(&config.over(parse(&base.bytes)?))?, Some((base, below))),
            }
        }
    };
    if let Some(old) = old {
        compiled.router.take_over(old);
    }
    Ok((compiled.router, base))
}

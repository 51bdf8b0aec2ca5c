//! The front's table of routes: the router that was made with the files that ghost reads.

use std::sync::Arc;

use crate::ghost_files::Ghost;

/// Keeps the front's table at the newest files.
#[derive(Debug)]
pub(crate) struct Routes {
    http: Arc<front::Http>,
    /// What the table was made of.
    ghost: Option<Ghost>,
}

impl Routes {
    pub(crate) fn new(http: Arc<front::Http>) -> Self {
        Self { http, ghost: None }
    }

    /// Gives the front the table of these files. After an error it keeps its table.
    pub(crate) async fn take(&mut self, ghost: &Ghost) -> Result<(), String> {
        if self.ghost.as_ref().is_some_and(|known| known == ghost) {
            return Ok(());
        }
        let (http, router) = (Arc::clone(&self.http), Arc::clone(&ghost.router));
        // Thousands of routes take their time, and the task has others to serve.
        tokio::task::spawn_blocking(move || http.route_by(router)).await.map_err(|e| e.to_string())?;
        self.ghost = Some(ghost.clone());
        Ok(())
    }
}

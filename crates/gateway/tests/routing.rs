//! Requests through the real thing: which origin gets them, and as what.

mod backend_filters;
mod bodies;
mod cors;
mod endpoints;
mod filters;
mod headers;
mod listeners;
mod matching;

use crate::support::{Origin, Program, Scene, class, free_port, gateway, service};

/// Gateway `web` with one listener, in front of Services that have one origin each.
struct Site {
    port: u16,
    origins: Vec<Origin>,
    /// Before the scene: the program ends while its files are there.
    program: Program,
    #[expect(dead_code, reason = "the files live as long as the program")]
    scene: Scene,
}

impl Site {
    /// Serves these routes; every Service is named like its origin.
    fn new(services: &[&str], routes: &str) -> Self {
        Self::of_class(&class(), services, routes)
    }

    fn of_class(class: &str, services: &[&str], routes: &str) -> Self {
        let port = free_port();
        let origins: Vec<_> = services.iter().map(|name| Origin::new(name)).collect();
        let backends: String =
            services.iter().zip(&origins).map(|(name, origin)| service(name, &[origin.address()])).collect();
        let scene = Scene::new(&[class, &gateway("web", &[port]), &backends, routes].concat());
        let program = scene.serve();
        Self { port, origins, program, scene }
    }

    fn origin(&self) -> &Origin {
        &self.origins[0]
    }
}

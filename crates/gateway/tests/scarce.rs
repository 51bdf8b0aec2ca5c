//! The front carries HTTP, and file descriptors are scarce.

use crate::support::{
    Ask, Connection, Origin, Scene, free_port, gateway, get, parameters, route_to, service, until,
};
use crate::tls_trouble::{limit_files, open_files};

#[test]
fn without_file_descriptors_new_clients_wait_and_served_ones_go_on() {
    let (port, shop) = (free_port(), Origin::new("shop"));
    let manifests = [
        parameters("{dataPath: Auto}"),
        gateway("web", &[port]),
        service("shop", &[shop.address()]),
        route_to("shop", "/", "shop"),
    ];
    let scene = Scene::new(&manifests.concat());
    let program = scene.serve();
    until("it serves", || Ask::get("x", "/").try_send(port).is_ok_and(|response| response.status == 200));
    let ask = Ask::get("x", "/");
    let mut served = Connection::open(port).unwrap();
    assert_eq!(served.exchange(&ask).status, 200);

    let before = limit_files(program.pid(), open_files(program.pid()) + 4);
    // The kernel takes their connections; the front cannot.
    let mut waiting: Vec<_> = (0..30).filter_map(|_| Connection::open(port).ok()).collect();
    assert_eq!(waiting.len(), 30);
    program.wait_for_line(&["cannot accept", "are there enough file descriptors?"]);
    for client in &mut waiting {
        client.write(&ask).unwrap();
    }
    for _ in 0..20 {
        assert_eq!(served.exchange(&ask).status, 200);
    }

    limit_files(program.pid(), before);
    // Those who waited are served, without asking again. A few were let in while there was no descriptor for the origin.
    let statuses: Vec<u16> = waiting.iter_mut().map(|client| client.read("GET").unwrap().status).collect();
    assert!(statuses.iter().filter(|status| **status == 200).count() >= 20, "{statuses:?}");
    assert!(statuses.iter().all(|status| matches!(status, 200 | 503)), "{statuses:?}");
    assert_eq!(served.exchange(&ask).status, 200);
    assert_eq!(get(port, "x", "/").status, 200);
}

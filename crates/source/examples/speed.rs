use std::fmt::Write;
use std::time::Instant;
fn route(i: usize) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata:\n  name: route-{i}\n  namespace: shop\n  labels:\n    app.kubernetes.io/name: shop-{i}\nspec:\n  parentRefs:\n  - name: gateway\n    sectionName: http\n  hostnames:\n  - shop-{i}.example.com\n  rules:\n  - matches:\n    - path:\n        type: PathPrefix\n        value: /api/v{i}\n      headers:\n      - name: X-Version\n        value: 'v2'\n    backendRefs:\n    - name: service-{i}\n      port: 8080\n      weight: 3\n    - name: canary-{i}\n      port: 8080\n"
    )
}
fn main() {
    let t = Instant::now();
    source::files::parse_str("x.yaml", &route(0));
    println!("first parse (schemas) {:?}", t.elapsed());
    let dir = tempfile::tempdir().unwrap();
    let mut all = String::new();
    for i in 0..10_000 {
        write!(all, "---\n{}", route(i)).unwrap();
    }
    println!("{} bytes", all.len());
    let one = dir.path().join("one.yaml");
    std::fs::write(&one, &all).unwrap();
    let mut files = source::files::Files::new(vec![one.clone()]);
    for what in ["one file, cold", "again"] {
        let t = Instant::now();
        let l = files.load();
        println!(
            "{what}: {:?} {} {:?} changed {}",
            t.elapsed(),
            l.snapshot.http_routes.len(),
            l.problems.first(),
            l.changed
        );
    }
    std::fs::write(&one, all.replacen("canary-77\n", "canary-78\n", 1)).unwrap();
    let t = Instant::now();
    let l = files.load();
    println!("one route changed: {:?} changed {}", t.elapsed(), l.changed);
    let many = dir.path().join("many");
    std::fs::create_dir(&many).unwrap();
    for i in 0..10_000 {
        std::fs::write(many.join(format!("r{i:05}.yaml")), route(i)).unwrap();
    }
    let mut files = source::files::Files::new(vec![many]);
    for what in ["10000 files, cold", "again"] {
        let t = Instant::now();
        let l = files.load();
        println!("{what}: {:?} {} changed {}", t.elapsed(), l.snapshot.http_routes.len(), l.changed);
    }
    let mut list = String::from("apiVersion: v1\nkind: List\nitems:\n");
    for i in 0..10_000 {
        for (n, line) in route(i).lines().enumerate() {
            writeln!(list, "{}{line}", if n == 0 { "- " } else { "  " }).unwrap();
        }
    }
    let t = Instant::now();
    let (s, p) = source::files::parse_str("list.yaml", &list);
    println!("list: {:?} {} {:?}", t.elapsed(), s.http_routes.len(), p.first());
    let json: String = serde_json::to_string(&serde_json::json!({"apiVersion":"v1","kind":"List","items": s.http_routes.values().map(|r| serde_json::to_value(&**r).unwrap()).collect::<Vec<_>>()})).unwrap();
    let t = Instant::now();
    let (s, p) = source::files::parse_str("list.json", &json);
    println!("json {} bytes: {:?} {} {:?}", json.len(), t.elapsed(), s.http_routes.len(), p.first());
}

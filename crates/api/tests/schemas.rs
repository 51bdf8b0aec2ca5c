//! The schemas in docs/reference are those of the types. `make bless` writes them.

use std::path::PathBuf;

use schemars::{JsonSchema, schema_for};

fn is_committed<T: JsonSchema>(file: &str) -> Result<(), Box<dyn std::error::Error>> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(file);
    let made = serde_json::to_string_pretty(&schema_for!(T))? + "\n";
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &made)?;
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == made, "{} is not what the types say: run `make bless`", path.display());
    Ok(())
}

#[test]
fn the_schema_of_routing_json_is_that_of_its_type() {
    is_committed::<model::routing::Routing>("routing.schema.json").unwrap();
}

#[test]
fn the_schema_of_ghost_json_is_that_of_its_type() {
    is_committed::<model::ghost::Config>("ghost.schema.json").unwrap();
}

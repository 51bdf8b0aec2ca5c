//! In place of `cluster` in builds without the feature `kubernetes`.

use dashboard::view::{Row, Top};
use dashboard::{Asked, Explained};

use super::Status;
use crate::cli::Target;

/// There is none.
pub(crate) enum Cluster {}

impl Cluster {
    pub(super) async fn connect(_: &Target, _: bool) -> anyhow::Result<Self> {
        Err(crate::without_kubernetes())
    }

    pub(super) fn namespace(&self) -> Option<&str> {
        match *self {}
    }

    pub(super) fn nothing(&self) -> String {
        match *self {}
    }

    pub(super) async fn status(&self) -> anyhow::Result<(Vec<Status>, Vec<Row>)> {
        match *self {}
    }

    pub(super) async fn explain(&self, _: &Asked, _: Option<u16>) -> anyhow::Result<Vec<Explained>> {
        match *self {}
    }

    pub(super) async fn top(&mut self, _: u64, _: usize) -> anyhow::Result<Top> {
        match *self {}
    }
}

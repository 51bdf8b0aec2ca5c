//! The Secrets with a Gateway's certificates.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::Resource;
use kube::api::ObjectMeta;
use translate::Key;
use workload::tls_secrets;

use super::{Actor, INFRASTRUCTURE, delete, gateway_of};
use crate::Error;
use crate::apply::Ledger;
use crate::owned::is_made_by_us;

impl Actor {
    /// The existing Secrets, by number.
    fn tls_secrets_there(&self) -> Vec<(usize, Key, Arc<Secret>)> {
        let all = self.owned.secrets.objects();
        let mine = all.into_iter().filter_map(|(key, secret)| {
            let number = workload::tls_secret_number(&self.key.name, &key.name)?;
            self.is_mine(&key, secret.as_ref()).then_some((number, key, secret))
        });
        mine.collect()
    }

    /// Made for this Gateway, in its namespace. A copy in another namespace, even with our labels, is not ours.
    pub(super) fn is_mine(&self, key: &Key, object: &impl Resource) -> bool {
        key.namespace == self.key.namespace
            && gateway_of(object).as_ref() == Some(&self.key)
            && is_made_by_us(object.meta())
    }

    /// The number of Secrets, up to the last existing one.
    pub(super) fn tls_secret_count(&self) -> usize {
        count(&self.tls_secrets_there())
    }

    /// The current content of the Secrets, by number.
    pub(super) fn pairs(&self) -> Vec<tls_secrets::Data> {
        let there = self.tls_secrets_there();
        let mut all = vec![tls_secrets::Data::new(); count(&there)];
        for (number, _, secret) in there {
            if let (Some(to), Some(data)) = (all.get_mut(number), &secret.data) {
                to.clone_from(data);
            }
        }
        all
    }

    /// Writes the first Secret last, because it says how many Secrets there are.
    pub(super) async fn tls_secrets(
        &self,
        meta: &impl Fn(String) -> ObjectMeta,
        pairs: &[tls_secrets::Data],
        ledger: &mut Ledger,
    ) -> Result<(), Error> {
        let (first, others) = pairs.split_at(pairs.len().min(1));
        let others = others.iter().enumerate().map(|(at, data)| (at + 1, data));
        for (number, data) in others.chain(first.iter().map(|data| (0, data))) {
            let metadata = meta(workload::tls_secret(&self.key.name, number));
            if !self.has_pairs(&metadata, data) {
                let secret = Secret { metadata, data: Some(data.clone()), ..Secret::default() };
                ledger.apply(&self.owned.secrets, INFRASTRUCTURE, &secret).await?;
            }
        }
        for (number, key, secret) in self.tls_secrets_there() {
            if number >= pairs.len().max(1) {
                delete::<Secret>(&self.client, &key, secret.metadata.uid.clone()).await?;
                ledger.forget("Secret", &key);
            }
        }
        Ok(())
    }

    /// Does the Secret exist with the desired content? Comparing megabytes is faster than hashing them.
    fn has_pairs(&self, metadata: &ObjectMeta, data: &tls_secrets::Data) -> bool {
        let key = Key::new(
            metadata.namespace.as_deref().unwrap_or_default(),
            metadata.name.as_deref().unwrap_or_default(),
        );
        self.owned.secrets.get(&key).is_some_and(|there| {
            there.data.as_ref().map_or(data.is_empty(), |there| there == data)
                && has(&there.metadata.labels, &metadata.labels)
                && has(&there.metadata.annotations, &metadata.annotations)
                && there.metadata.owner_references == metadata.owner_references
        })
    }
}

fn count(there: &[(usize, Key, Arc<Secret>)]) -> usize {
    there.iter().map(|(number, ..)| number + 1).max().unwrap_or_default()
}

fn has(theirs: &Option<BTreeMap<String, String>>, ours: &Option<BTreeMap<String, String>>) -> bool {
    let get = |name| theirs.as_ref().and_then(|theirs| theirs.get(name));
    ours.iter().flatten().all(|(name, value)| get(name) == Some(value))
}

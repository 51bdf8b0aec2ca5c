//! Writes what `translate` says into the cluster.

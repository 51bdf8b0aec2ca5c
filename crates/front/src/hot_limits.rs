//! How much of the front's memory hot objects may take.

/// Objects that the front answers from its own memory: how many bytes, and how large each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HotLimits {
    pub enabled: bool,
    /// Of all hot objects of one Gateway.
    pub bytes: u64,
    /// The body of one.
    pub max_object_bytes: u64,
}

impl HotLimits {
    /// Without a limit of the container.
    pub const DEFAULT_BYTES: u64 = 64 << 20;
    pub const DEFAULT_MAX_OBJECT_BYTES: u64 = 64 << 10;
    /// More is not taken by default, however large the container is.
    const MOST_BY_DEFAULT: u64 = 256 << 20;
    const SHARE_OF_MEMORY: u64 = 16;

    /// No hot objects.
    pub const OFF: Self = Self { enabled: false, bytes: 0, max_object_bytes: 0 };

    /// The bytes of hot objects by default: a sixteenth of the container's memory.
    pub fn default_bytes(memory: Option<u64>) -> u64 {
        memory
            .map_or(Self::DEFAULT_BYTES, |memory| (memory / Self::SHARE_OF_MEMORY).min(Self::MOST_BY_DEFAULT))
    }
}

impl Default for HotLimits {
    fn default() -> Self {
        Self { enabled: true, bytes: Self::DEFAULT_BYTES, max_object_bytes: Self::DEFAULT_MAX_OBJECT_BYTES }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_objects_take_a_sixteenth_of_the_memory_and_no_more_than_256_mib() {
        assert_eq!(HotLimits::default_bytes(None), 64 << 20);
        assert_eq!(HotLimits::default_bytes(Some(512 << 20)), 32 << 20);
        assert_eq!(HotLimits::default_bytes(Some(64 << 30)), 256 << 20);
    }
}

"""What the scripts share. `test`, `bench`, `generate`, `check` and `tool` have a file for each part that `scripts/GROUP PART` runs; the other
packages are used by them."""

"""Files and their names, the disk, and the page cache."""

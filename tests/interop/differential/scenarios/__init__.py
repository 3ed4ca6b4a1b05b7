"""What is asked, by subject; `everything` has them all in the order in which they are played."""

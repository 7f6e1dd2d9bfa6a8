"""What commands do by asking a server over REST, by topic. Neither rows nor a home are on this machine."""

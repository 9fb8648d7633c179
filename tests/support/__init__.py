"""What tests of several stages share: waiting, processes, servers."""

"""Loading by SQL: dialects, statements and transactions. Start reading at `transactional`."""

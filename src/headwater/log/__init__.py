"""Stage 2: acknowledged events are kept, in order, until every reader has them."""

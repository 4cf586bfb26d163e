"""Store alerts in a database, with the states and the actions that change them."""

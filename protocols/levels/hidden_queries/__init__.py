"""Hidden queries: a hospital's own records, labelled by other parties' models without showing them."""

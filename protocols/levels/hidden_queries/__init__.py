"""Hidden queries: a hospital's own records, labelled by models of others that never see them."""

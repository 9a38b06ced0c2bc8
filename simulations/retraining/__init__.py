"""Teachers trained again without one record: what a typical record costs."""

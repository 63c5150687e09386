"""Analytics: sessions as tables for analysts: Parquet files, and SQL over them."""

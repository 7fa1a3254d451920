SELECT COALESCE(MAX(version), 0) FROM `app_asyncmonolith_migrations`;

SELECT set_config('synchronous_commit', 'off', true), pg_notify('asyncmonolith..app_', 'sender messages');

vcl 4.1;
backend origin { .host = "127.0.0.1"; .port = "$origin"; }
sub vcl_recv { if (local.socket == "pass") { return (pass); } }
sub vcl_backend_response { set beresp.ttl = 1h; }

# difference: fields-since-7.7
# compiles on: 7.7, 9.0
vcl 4.1;
backend none none;
probe often {
  .expect_close = false;
}
backend origin { .host = "127.0.0.1"; .probe = often; }
sub vcl_recv { set req.backend_hint = origin; }

# difference: fields-since-7.7
# compiles on: 7.7, 9.0
vcl 4.1;
backend none none;
backend proxy { .host = "127.0.0.1"; }
backend origin {
  .host = "127.0.0.1";
  .authority = "a.example";
  .via = proxy;
}
sub vcl_recv { set req.backend_hint = origin; }

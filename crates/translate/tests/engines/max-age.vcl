# difference: max-age
# compiles on: 9.0
vcl 4.1;
backend none none;
sub vcl_recv {
  set req.max_age = 1m;
}

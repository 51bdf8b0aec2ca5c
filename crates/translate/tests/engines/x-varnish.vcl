# difference: request-id
# compiles on: 7.1, 7.7, 9.0
vcl 4.1;
backend none none;
sub vcl_deliver {
  unset resp.http.x-varnish;
}

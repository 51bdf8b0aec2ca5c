# difference: refresh
# compiles on: 9.0
vcl 4.1;
backend none none;
sub vcl_backend_refresh {
  return (merge);
}

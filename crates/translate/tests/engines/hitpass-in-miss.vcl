# difference: hitpass-scope
# compiles on: 7.1
vcl 4.1;
backend none none;
sub vcl_miss {
  if (req.is_hitpass) { return (pass); }
}

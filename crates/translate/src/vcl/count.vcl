
sub vcl_deliver {
	router.count();
}

sub vcl_synth {
	router.count();
}
